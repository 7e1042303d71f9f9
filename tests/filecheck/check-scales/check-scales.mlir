// RUN: tpusim opt -p 'processor-assign{chip=bm1684x mode=INT8},choose-formats,propagate-ranges,convert-ops,check-scales' %s | filecheck %s
//
// Ops that store a tensor of a quantised network in other steps than the network are marked, here because of the
// zero point of y.
// WEIGHT pointwise = 1 2 3

module attributes {module.own_ranges = [["y", 1.000000e-02 : f64, -28 : i64, 227 : i64]], module.weight_file = "weights.npz"} {
  func.func @main(%in: tensor<1x4x6x6xf32>) -> tensor<1x4x6x6x!quant.calibrated<f32<-2.0:2.0>>> {
    %x = "top.Input"(%in) : (tensor<1x4x6x6xf32>) -> tensor<1x4x6x6x!quant.calibrated<f32<-2.0:2.0>>> loc("x")
    %pointwise = "top.Weight"() : () -> tensor<4x4x1x1xf32> loc("pointwise")
    %none = "top.None"() : () -> none
    %y = "top.Conv"(%x, %pointwise, %none) {kernel_shape = [1, 1], strides = [1, 1], pads = [0, 0, 0, 0]} : (tensor<1x4x6x6x!quant.calibrated<f32<-2.0:2.0>>>, tensor<4x4x1x1xf32>, none) -> tensor<1x4x6x6x!quant.calibrated<f32<-2.0:2.0>>> loc("y")
    func.return %y : tensor<1x4x6x6x!quant.calibrated<f32<-2.0:2.0>>>
  }
}

// CHECK:      module.asymmetric = false{{.*}}module.chip = "bm1684x"{{.*}}module.mode = "INT8"{{.*}}module.state = "TPU_LOWERED"
// CHECK:      %1 = "top.Input"(%0) : (tensor<1x4x6x6xf32>) -> tensor<1x4x6x6xf32> loc("x")
// CHECK-NEXT: %2 = "tpu.Cast"(%1) {{.*}} -> tensor<1x4x6x6x!quant.uniform<i8:f32, 0.015748031496062992>> loc("xy_si8")
// CHECK-NEXT: %3 = "top.Weight"() : () -> tensor<4x4x1x1xui8> loc("pointwise_int8")
// CHECK-NEXT: %4 = "top.None"() {{.*}} -> none
// CHECK-NEXT: %5 = "tpu.Conv2D"(%2, %3, %4) {kernel_shape = [1 : i64, 1 : i64], strides = [1 : i64, 1 : i64], pads = [0 : i64, 0 : i64, 0 : i64, 0 : i64], dilations = [1 : i64, 1 : i64], group = 1 : i64, {{.*}}, multiplier = [1 : i64, 1 : i64, 1 : i64, 1 : i64], rshift = [0 : i64, 0 : i64, 0 : i64, 0 : i64], quant_mode = #tpu<rq_mode MultiplierShift>, with_bias = false, tpusim.decisions = ["DN-32"]}{{.*}} -> tensor<1x4x6x6x!quant.uniform<i8:f32, 0.015748031496062992>> loc("y")
// CHECK-NEXT: %6 = "tpu.Cast"(%5) {{.*}} -> tensor<1x4x6x6xf32> loc("y_f32")
// CHECK-NEXT: func.return %6 : tensor<1x4x6x6xf32>
