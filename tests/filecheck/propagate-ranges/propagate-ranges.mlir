// RUN: tpusim opt -p 'processor-assign{chip=bm1684x mode=INT8},choose-formats,propagate-ranges' %s | filecheck %s
//
// The range of a Relu is that of its operand too, and a Reshape has one range with its operand.

func.func @main(%in: tensor<1x4x6x6xf32>) -> tensor<4x36x!quant.calibrated<f32<-1.0:1.0>>> {
  %x = "top.Input"(%in) : (tensor<1x4x6x6xf32>) -> tensor<1x4x6x6x!quant.calibrated<f32<-2.0:2.0>>> loc("x")
  %a = "top.Reshape"(%x) {shape = [4, 36]} : (tensor<1x4x6x6x!quant.calibrated<f32<-2.0:2.0>>>) -> tensor<4x36x!quant.calibrated<f32<-1.0:1.0>>> loc("a")
  %y = "top.Relu"(%a) {relu_limit = -1.000000e+00 : f64} : (tensor<4x36x!quant.calibrated<f32<-1.0:1.0>>>) -> tensor<4x36x!quant.calibrated<f32<-1.0:1.0>>> loc("y")
  func.return %y : tensor<4x36x!quant.calibrated<f32<-1.0:1.0>>>
}

// CHECK:      module.state = "TOP_CALIBRATED"
// CHECK:      %x = "top.Input"(%in) : (tensor<1x4x6x6xf32>) -> tensor<1x4x6x6x!quant.calibrated<f32<-1.0:1.0>>> loc("x")
// CHECK-NEXT: %a = "top.Reshape"(%x) {shape = [4 : i64, 36 : i64]}{{.*}} -> tensor<4x36x!quant.calibrated<f32<-1.0:1.0>>> loc("a")
// CHECK-NEXT: %y = "top.Relu"(%a) {relu_limit = -1.000000e+00 : f64}{{.*}} -> tensor<4x36x!quant.calibrated<f32<-1.0:1.0>>> loc("y")
// CHECK-NEXT: func.return %y : tensor<4x36x!quant.calibrated<f32<-1.0:1.0>>>
