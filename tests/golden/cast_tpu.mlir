module attributes {module.name = "cast", module.state = "TPU_LOWERED", module.weight_file = ""} {
  func.func @main(%arg0: tensor<1x16x100x100x!quant.calibrated<f32<-4.1780586242675781:4.4932479858398438>>> loc("input")) -> tensor<1x16x100x100x!quant.uniform<i8:f32, 0.034005123961205579:-5>> {
    %0 = "tpu.Cast"(%arg0) : (tensor<1x16x100x100x!quant.calibrated<f32<-4.1780586242675781:4.4932479858398438>>>) -> tensor<1x16x100x100x!quant.uniform<i8:f32, 0.034005123961205579:-5>> loc(#loc1)
    return %0 : tensor<1x16x100x100x!quant.uniform<i8:f32, 0.034005123961205579:-5>> loc(#loc)
  } loc(#loc)
} loc(#loc)
#loc = loc(unknown)
#loc1 = loc("input_si8")
