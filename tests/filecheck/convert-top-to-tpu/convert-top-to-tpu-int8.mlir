// RUN: tpusim opt -p 'convert-top-to-tpu{chip=bm1684x mode=INT8}' %s | filecheck %s
//
// In INT8 the filter is quantised by channel, and the Conv2D has a multiplier and a shift for each channel.
// WEIGHT pointwise = 1 2 3
// WEIGHT bias = 1 2 3 4

module attributes {module.weight_file = "weights.npz"} {
  func.func @main(%in: tensor<1x4x6x6xf32>) -> tensor<1x4x6x6x!quant.calibrated<f32<0.0:2.0>>> {
    %x = "top.Input"(%in) : (tensor<1x4x6x6xf32>) -> tensor<1x4x6x6x!quant.calibrated<f32<-2.0:2.0>>> loc("x")
    %pointwise = "top.Weight"() : () -> tensor<4x4x1x1xf32> loc("pointwise")
    %bias = "top.Weight"() : () -> tensor<4xf32> loc("bias")
    %y = "top.Conv"(%x, %pointwise, %bias) {kernel_shape = [1, 1], strides = [1, 1], pads = [0, 0, 0, 0]} : (tensor<1x4x6x6x!quant.calibrated<f32<-2.0:2.0>>>, tensor<4x4x1x1xf32>, tensor<4xf32>) -> tensor<1x4x6x6x!quant.calibrated<f32<0.0:2.0>>> loc("y")
    func.return %y : tensor<1x4x6x6x!quant.calibrated<f32<0.0:2.0>>>
  }
}

// CHECK:      module.asymmetric = false{{.*}}module.chip = "bm1684x"{{.*}}module.mode = "INT8"{{.*}}module.state = "TPU_LOWERED"
// CHECK:      %1 = "top.Input"(%0) : (tensor<1x4x6x6xf32>) -> tensor<1x4x6x6xf32> loc("x")
// CHECK-NEXT: %2 = "tpu.Cast"(%1) {{.*}} -> tensor<1x4x6x6x!quant.uniform<i8:f32, 0.015748031496062992>> loc("xy_si8")
// CHECK-NEXT: %3 = "top.Weight"() : () -> tensor<4x4x1x1xi8> loc("pointwise_int8")
// CHECK-NEXT: %4 = "top.Weight"() : () -> tensor<4xi32> loc("pointwise_bias_int32")
// CHECK-NEXT: %5 = "tpu.Conv2D"(%2, %3, %4) {kernel_shape = [1 : i64, 1 : i64], strides = [1 : i64, 1 : i64], pads = [0 : i64, 0 : i64, 0 : i64, 0 : i64], dilations = [1 : i64, 1 : i64], group = 1 : i64, {{.*}}, multiplier = [4210817 : i64, 4210817 : i64, 4210817 : i64, 4210817 : i64], rshift = [21 : i64, 21 : i64, 21 : i64, 21 : i64], quant_mode = #tpu<rq_mode MultiplierShift>, with_bias = true}{{.*}} -> tensor<1x4x6x6x!quant.uniform<u8:f32, 0.00784313725490196>> loc("y")
// CHECK-NEXT: %6 = "tpu.Cast"(%5) {{.*}} -> tensor<1x4x6x6xf32> loc("y_f32")
// CHECK-NEXT: func.return %6 : tensor<1x4x6x6xf32>
